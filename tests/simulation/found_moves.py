"""Histories in which rows lost their large values, or got others', on their way through keys: a world, what happens in
it, and the fault with which it goes wrong again.
"""

from __future__ import annotations

import attrs

from tests.simulation.move_mutations import (
    creates_that_leave_values_out_are_let_go,
    gaps_behind_repetitions_are_not_seen,
    older_rows_are_taken_along,
    partitions_of_grown_topics_are_read_unevenly,
    repetitions_in_another_partition_go_on,
    rows_are_not_looked_for_under_keys_between,
    tables_are_not_asked_whether_partitions_go_on,
    tombstones_are_of_another_log,
    values_are_filled_in_the_order_of_kafka,
    what_comes_again_stays_in_its_partition,
    what_nobody_told_is_taken_from_others,
)
from tests.simulation.mutations import Mutation
from tests.simulation.steps import Batch, KafkaStep, SourceStep, Story, World

MOVING = World(leaves_out=True, moves=True)
_WHOLE = Batch(0, 0, whole=True)

FOUND_MOVES: dict[str, tuple[Story, Mutation]] = {
    # 6 -> 9, and sent again with 9 -> 1 -> 5: only the table's row under 9 had the value, and the placeholder stayed.
    "a row moves on, and what brought it to the key between is sent again": (
        Story(
            MOVING,
            (
                SourceStep("commit", 423),
                SourceStep("commits", 701),
                _WHOLE,
                SourceStep("commit", 839),
                SourceStep("restart", 637),
            ),
        ),
        rows_are_not_looked_for_under_keys_between,
    ),
    # The first batch behind the growth has all of the old partition: its limit was that of another one, further ahead.
    "an update leaves a value out in the key's new partition, and the old one's last update is in the same batch": (
        Story(
            World(partitions=3, parallelism=2, leaves_out=True, numbered=True),
            (
                SourceStep("commits", 446),
                SourceStep("commit", 333),
                SourceStep("restart", 434),
                SourceStep("commits", 26),
                Batch(0, 5, grid=2),
                SourceStep("grow", 170),
                SourceStep("commit", 130),
            ),
        ),
        tables_are_not_asked_whether_partitions_go_on,
    ),
    # Update 7, delete 9, create 12, and update 7 again: it took the value of the row of 12.
    "an update is sent again behind the next row of its key": (
        Story(
            MOVING,
            (
                SourceStep("commit", 845),
                SourceStep("commits", 483),
                _WHOLE,
                SourceStep("commit", 932),
                SourceStep("restart", 612),
            ),
        ),
        values_are_filled_in_the_order_of_kafka,
    ),
    # The batch ended before the change of key came again that stands between: the update took the other row's value.
    "a batch ends within what is sent again, in front of where it began itself": (
        Story(
            MOVING,
            (
                SourceStep("commits", 231),
                SourceStep("commit", 980),
                SourceStep("commit", 503),
                SourceStep("commit", 693),
                _WHOLE,
                SourceStep("commit", 641),
                SourceStep("restart", 587),
                Batch(0, 0, grid=2),
            ),
        ),
        gaps_behind_repetitions_are_not_seen,
    ),
    # Create 3, delete 3, 2 -> 3, update 3 in one transaction: the first fold handed on the first of them, as the proof
    # of its date, and the last one, which the second fold filled from it.
    "a row gets a key that another one had and lost in the same transaction": (
        Story(MOVING, (SourceStep("commits", 578), SourceStep("commits", 563))),
        creates_that_leave_values_out_are_let_go,
    ),
    # Delete and create were in the old partition, behind the batch: the update in the new one took the value of the row
    # before.
    "a topic grows, and its new partition is read before the old one": (
        Story(
            World(leaves_out=True),
            (
                SourceStep("commits", 997),
                SourceStep("commit", 33),
                _WHOLE,
                SourceStep("commit", 28),
                SourceStep("grow", 689),
                SourceStep("commit", 268),
                Batch(0, 4, grid=1),
            ),
        ),
        partitions_of_grown_topics_are_read_unevenly,
    ),
    # The new partition had update 1936, and then create 1024 and delete 1032 once more: the update's row was that of
    # create 1128 in the old one, and got the placeholder.
    "a topic grows, and a row that ended before comes again in the new partition": (
        Story(
            World(leaves_out=True),
            (
                SourceStep("commits", 997),
                _WHOLE,
                SourceStep("commit", 28),
                SourceStep("grow", 689),
                SourceStep("commit", 268),
                SourceStep("restart", 813),
                Batch(0, 7, grid=1),
            ),
        ),
        what_comes_again_stays_in_its_partition,
    ),
    # Create 1048 came again in the key's new partition, and update 1184 for the first time in the old one: update 1160
    # between them was read before.
    "a topic grows, and a batch has the beginning of what comes again": (
        Story(
            World(partitions=3, leaves_out=True),
            (
                SourceStep("commits", 77),
                SourceStep("commit", 975),
                _WHOLE,
                SourceStep("commits", 45),
                SourceStep("commits", 880),
                SourceStep("grow", 142),
                SourceStep("restart", 431),
                Batch(0, 5),
                Batch(0, 3, grid=1),
            ),
        ),
        repetitions_in_another_partition_go_on,
    ),
    # 1 -> 2 and 0 -> 1 in one transaction, the value of the first row from before the topic begins. Sent again, it took
    # that of the second one, which has key 1 by then: both have one date, and rows did not tell their place.
    "a change of key comes again, and its old key became another row's in the same transaction": (
        Story(
            attrs.evolve(MOVING, places=False),
            (
                SourceStep("commits", 855),
                KafkaStep("retain", 337),
                SourceStep("commit", 238),
                SourceStep("restart", 320),
                Batch(0, 6, grid=0),
            ),
        ),
        what_nobody_told_is_taken_from_others,
    ),
    # Nothing came again: the row under the old key was there without the value, and so the one before it was asked.
    "the row of the old key lacks the value, and another row had the key before": (
        Story(
            MOVING,
            (
                SourceStep("commits", 680),
                KafkaStep("retain", 784),
                Batch(0, 127, whole=True),
                SourceStep("commits", 151),
                Batch(0, 971),
            ),
        ),
        what_nobody_told_is_taken_from_others,
    ),
    # The table had update 4 at 1096. A batch had 4 -> 1 at 1128, and then create 4 at 1064 once more, where it ended.
    "a change of key, and a part of what comes again of its old key": (
        Story(
            MOVING,
            (
                SourceStep("commits", 448),
                SourceStep("commit", 244),
                SourceStep("restart", 596),
                SourceStep("commits", 206),
                Batch(0, 197),
                SourceStep("restart", 567),
                Batch(0, 502),
            ),
        ),
        older_rows_are_taken_along,
    ),
    # The topic begins with a tombstone of key 2, whose delete is gone, and has another row of key 2 at 1080. Sent again
    # behind it, update 1024 and 2 -> 3 at 1032 took that row's values: the tombstone passed for one of another log.
    "a topic begins with a tombstone, and what was before it is sent again behind the next row of its key": (
        Story(MOVING, (SourceStep("commits", 261), KafkaStep("retain", 720), SourceStep("restart", 35))),
        tombstones_are_of_another_log,
    ),
}
