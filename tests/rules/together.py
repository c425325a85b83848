"""The faults of the catalogue in one log."""

from __future__ import annotations

from itertools import count

from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.reader import OnDamage
from tests.log.builders import NOW_MS
from tests.rules.faults import FAULTS
from tests.rules.logs import HEALTHY, TOPICS, Log, log_of

KINDS = [log for log in FAULTS.values() if log.release == "4.3.1" and log.num_partitions == 1]
# What shows at another time, or beside other topics, than those of all of them together.
ELSE = {"R13", "R40", "R46", "R48", "R60", "R80", "R82", "R83", "R84", "R85", "R86", "R87", "R90"}
ALONE = {code: log for code, log in FAULTS.items() if log.release != "4.3.1" or log.settings or code in ELSE}
# So many that the group of most faults is at home in one of them.
PARTITIONS = next(number for number in count(len(KINDS)) if partition_for("g", number) < 10)


def together() -> Log:
    """The faults as offsets partitions of one log; most groups are in the wrong one, and many in several."""
    before = [log.previous.partitions[0] if log.previous else log_of(*HEALTHY) for log in KINDS]
    return Log(
        {number: log.partitions[0] for number, log in enumerate(KINDS)},
        now_ms=NOW_MS + 1_000_000,
        num_partitions=PARTITIONS,
        on_damage=OnDamage.RECOVER,
        topics=TOPICS,
        previous=Log(dict(enumerate(before)), num_partitions=PARTITIONS),
        scanned=True,
        going={"other": 8},
    )
