"""Commits of one time in a group: most often those of one request."""

import cython

from coordinator_core.kernels.arrays import zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *


def gather_requests(
    chosen: Int64s,
    group_of: Int64s,
    times: Int64s,
    offsets: Int64s,
    commits: Int64s,
    leader_epochs: Int32s,
    value_versions: Int32s,
    requests: GatheredRequestRows,
    numbers: MutableInt64s,
) -> Int:
    """Gather the ``chosen`` versions, of which those of a group are together, into ``requests``; returns how many.

    ``group_of`` goes with ``chosen``, the other columns with all versions: times of commits in epoch ms, record
    offsets, how many commits a version has, leader epochs and value versions. ``numbers`` gets the request of each.
    """
    count: Int = 0
    first: Int = 0
    stop: Int = 0
    places: Int = 1
    while places < 2 * len(chosen):
        places *= 2
    table: MutableInt64s = zeros(places)  # Requests of the group at hand by a hash of their time; 0 for none.
    with cython.nogil:
        while first < len(chosen):
            while stop < len(chosen) and group_of[stop] == group_of[first]:
                stop += 1
            places = 1
            while places < 2 * (stop - first):
                places *= 2
            for place in range(places):
                table[place] = 0
            for row in range(first, stop):
                version = chosen[row]
                place = signed(folded_product(cython.cast(Word, times[version]) & ALL_64_BITS, HASH_FINISHER)) & (
                    places - 1
                )
                while table[place] and requests[table[place] - 1].time != times[version]:
                    place = (place + 1) & (places - 1)
                number: Int = table[place] - 1
                if number < 0:
                    number = count
                    count += 1
                    table[place] = count
                    requests[number].group = group_of[row]
                    requests[number].time = times[version]
                    requests[number].first_offset = offsets[version]
                    requests[number].partitions = 0
                    requests[number].commits = 0
                    requests[number].leader_epoch = -1
                    requests[number].value_version = value_versions[version]
                requests[number].first_offset = min(requests[number].first_offset, offsets[version])
                requests[number].partitions += 1
                requests[number].commits = max(requests[number].commits, commits[version])
                requests[number].leader_epoch = max(requests[number].leader_epoch, leader_epochs[version])
                requests[number].value_version = min(requests[number].value_version, value_versions[version])
                numbers[row] = number
            first = stop
    return count
