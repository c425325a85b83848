import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * What Kafka's own SimpleAssignor makes of groups, one a line: kind;topic=partitions,...;member:topics:assignment;...
 * A set of partitions is 0+1+2, a kind H (all members subscribe alike) or E.
 */
public class ShareAssignor {
    static Map<Uuid, Set<Integer>> assignment(String text) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        for (String topic : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] parts = topic.split("=", 2);
            Set<Integer> partitions = new HashSet<>();
            for (String one : parts[1].isEmpty() ? new String[0] : parts[1].split("\\+")) partitions.add(Integer.parseInt(one));
            found.put(Uuid.fromString(parts[0]), partitions);
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(";", -1);
            Map<Uuid, Set<Integer>> assignable = assignment(fields[1]);
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            for (String member : Arrays.copyOfRange(fields, 2, fields.length)) {
                String[] parts = member.split(":", -1);
                Set<Uuid> topics = new LinkedHashSet<>();
                for (String one : parts[1].isEmpty() ? new String[0] : parts[1].split("\\+")) topics.add(Uuid.fromString(one));
                members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), Optional.empty(), topics, new Assignment(assignment(parts[2]))));
            }
            SubscriptionType type = fields[0].equals("H") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            GroupSpec spec = new GroupSpecImpl(members, type, new HashMap<>(), Optional.of(assignable));
            GroupAssignment found = new SimpleAssignor().assign(spec, new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) { return 64; }
                public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
            });
            StringJoiner out = new StringJoiner(";");
            for (String member : new TreeSet<>(found.members().keySet())) {
                StringJoiner topics = new StringJoiner(",");
                found.members().get(member).partitions().forEach((topic, partitions) -> {
                    StringJoiner numbers = new StringJoiner("+");
                    new TreeSet<>(partitions).forEach(one -> numbers.add(one.toString()));
                    topics.add(topic + "=" + numbers);
                });
                out.add(member + ":" + topics);
            }
            System.out.println(out);
        }
    }
}
