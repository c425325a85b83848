import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin;

/** Keeps nothing: the coordinator writes what it is told, not what is kept (KIP-1331). */
public class TopologyPlugin implements StreamsGroupTopologyDescriptionPlugin {
    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription description) {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Void> deleteTopology(String group) {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public void close() {
    }
}
