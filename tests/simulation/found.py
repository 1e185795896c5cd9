"""Histories in which faults of the product were found: a world, and what happens in it."""

from __future__ import annotations

from typing import Any

import attrs

from tests.simulation.found_growth import FOUND_GROWTH
from tests.simulation.found_orders import FOUND_ORDERS
from tests.simulation.found_rollbacks import FOUND_ROLLBACKS
from tests.simulation.steps import Batch, KafkaStep, Kill, Maintain, SourceStep, TableStep, World

LEFT_OUT = World(documents=True, leaves_out=True)


APPENDED = World(partitions=3, upsert=False, lazy=True)


PUT_BACK = (
    SourceStep("commits", 852),
    Batch(0, 0, grid=2),
    Batch(0, 0, whole=True),
    TableStep("roll back", 561),
)
"""The table is rolled back behind a commit whose offsets the sink has yet to store."""


TWICE = (
    SourceStep("commit", 536),
    Batch(0, 1, whole=True),
    SourceStep("commit", 902),
    Batch(0, 1, whole=True),
)


FOUND: dict[str, tuple[World, tuple[Any, ...]]] = {
    # What Java raises told what to do in neither of these three.
    "a table is dropped": (World(), (*TWICE[:3], TableStep("drop", 0), TWICE[1])),
    "another table has its name": (World(), (*TWICE[:3], TableStep("make again", 0), TWICE[1])),
    # No fault of the product: the first sink knows no earlier table, and brings all that the second one had brought.
    "a table is made again that a second sink of this name has made": (
        World(),
        (TWICE[1], TWICE[0], Batch(1, 1, whole=True), TableStep("make again", 0), TWICE[1]),
    ),
    "a table is rolled back, and its rewrite with it": (
        World(),
        (*TWICE, TableStep("rewrite files", 983), SourceStep("commit", 275), TableStep("roll back", 525), TWICE[1]),
    ),
    # A delete that came again seemed to end the row that has the key by now: the row of another key got its values.
    "a change of key comes again, and its old key is another row's by then": (
        World(leaves_out=True),
        (
            SourceStep("commits", 594),
            SourceStep("commit", 421),
            SourceStep("restart", 356),
            Batch(0, 0, whole=True),
            SourceStep("restart", 189),
            SourceStep("restart", 764),
        ),
    ),
    # Nothing but the row under its new key had the values: it got the placeholder.
    "a change of key comes again, and its old row came and went in one batch": (
        World(leaves_out=True),
        (SourceStep("commits", 949), Batch(0, 0, whole=True), SourceStep("restart", 734)),
    ),
    # Java said it in its words, and stopped the sink.
    "a table is rolled back while a second sink commits": (
        World(leaves_out=True),
        (
            SourceStep("commits", 835),
            Batch(0, 7, grid=1),
            Maintain(("convert", "rewrite"), 233, ((12, Batch(0, 1, whole=True)),)),
            SourceStep("commits", 969),
            Batch(1, 4, during=((19, TableStep("roll back", 421)),), grid=1),
        ),
    ),
    # Its offsets went back to the batch's, and the rest came into the table once more.
    "a batch that is read again ends earlier": (
        APPENDED,
        (
            SourceStep("commits", 309),
            SourceStep("commits", 310),
            Batch(0, 0),
            Kill(0),
            SourceStep("commits", 646),
            Batch(0, 176),
        ),
    ),
    # A delete without image told its place in the log of the source, but not as the table's rows tell theirs.
    "a delete comes again, of a transaction that made the row anew": (
        World(partitions=2),
        (SourceStep("commits", 765), SourceStep("restart", 975), Batch(0, 693), Batch(0, 841)),
    ),
    # The truncate took rows up to its own date only, and those of reads have the connector's clock.
    "a row that was read, and a truncate": (
        World(),
        (SourceStep("commit", 570), SourceStep("read", 495), Batch(0, 1, whole=True), SourceStep("truncate", 4)),
    ),
    # In the truncate's own partition Kafka's order decided, whatever the places said.
    "a truncate, and what came before it once more": (
        World(),
        (
            SourceStep("commits", 467),
            SourceStep("truncate", 352),
            Batch(0, 83),
            SourceStep("restart", 620),
            Batch(0, 297),
        ),
    ),
    # The delete was left out as one from before the truncate, and its tombstone took the row that was there by then.
    "a truncate comes again, and a delete with its tombstone before it": (
        World(),
        (
            SourceStep("commits", 795),
            SourceStep("truncate", 596),
            SourceStep("commit", 401),
            SourceStep("restart", 182),
            Batch(0, 832),
        ),
    ),
    # Of an index only what the last batch added was stored: the next start knew nothing of the other partitions, and a
    # change whose date was below that of the delete before it was refused.
    "a start, and an index whose last batch was of one partition": (
        World(partitions=3, clock="mariadb", documents=True),
        (SourceStep("commits", 256), Batch(0, 201), Batch(0, 671)),
    ),
    # Two batches came again as one, after a crash behind the second one's documents and before the first one's offsets
    # were saved; in one batch the last change of a key got a smaller version than an earlier one in two.
    "a crash behind documents, and offsets of the batch before": (
        World(clock="mysql", documents=True, lazy=True),
        (
            SourceStep("commit", 145),
            Batch(0, 0, whole=True),
            SourceStep("commits", 528),
            Batch(0, 761, during=((12, "crash"),)),
        ),
    ),
    # The delete of the later row was taken for the one that says under which key the earlier row goes on, and the later
    # row's document was put there.
    "a key that is given to another row in the batch in which its row gets another key": (
        LEFT_OUT,
        (SourceStep("commit", 222), SourceStep("commits", 750)),
    ),
    # What the update left out was taken from the document of another row that has or had one of the keys.
    "a new key that another row had": (
        LEFT_OUT,
        (SourceStep("commits", 161), Batch(0, 386), SourceStep("commits", 470)),
    ),
    "an old key whose row is another by then": (
        LEFT_OUT,
        (SourceStep("commits", 143), Batch(0, 0, whole=True), SourceStep("commit", 273), SourceStep("commit", 502)),
    ),
    # The delete of the old key, the last of its partition, got a greater version with each repetition; the document
    # that it put under the new key was above that of the create, in another partition.
    "a change of key that comes again and again": (
        attrs.evolve(LEFT_OUT, partitions=3),
        (
            SourceStep("commits", 502),
            Batch(0, 0, whole=True),
            SourceStep("restart", 580),
            SourceStep("restart", 797),
            Batch(0, 658),
        ),
    ),
    # Rows of a key were in the order of their dates, not in Kafka's, and what moved had the latest of them.
    "a change of key, and dates that go to and fro": (
        World(clock="mysql", documents=True),
        (SourceStep("commits", 907), SourceStep("commits", 527)),
    ),
    "a change of key that another partition's create tells of": (
        World(partitions=3, clock="seconds", documents=True),
        (
            SourceStep("commits", 895),
            SourceStep("commits", 735),
            SourceStep("commit", 113),
            SourceStep("commit", 648),
            SourceStep("restart", 153),
            Batch(0, 872),
        ),
    ),
    # A delete that marks the document empties it, and it may come before the create looks.
    "a new key, and a delete that only marks the old one": (
        attrs.evolve(LEFT_OUT, keep_deletes=True),
        (SourceStep("commit", 273), SourceStep("commit", 502)),
    ),
    # Documents went by the truncate's date, which says when the statement began.
    "a truncate that waited, and documents of later dates": (
        World(clock="mariadb", documents=True),
        (SourceStep("commit", 767), SourceStep("truncate", 465)),
    ),
    # The job had run without the truncate, and put the row above what its key had in front of it; in the job that knew
    # the truncate nothing was in front of it any more: the index refused the row.
    "a truncate in a batch, and the row behind it has an earlier date than the one before": (
        World(clock="mysql", documents=True),
        (SourceStep("commits", 197), SourceStep("truncate", 676), SourceStep("commit", 517)),
    ),
    # The offsets of a run that crashed behind its commit were stored, but not that commit.
    "a table is rolled back behind a commit that a crash kept from being stored": (
        World(),
        (
            SourceStep("commit", 424),
            Batch(0, 5),
            Batch(0, 293, whole=True, during=((11, Batch(1, 913, whole=True)),)),
            Batch(0, 463, whole=True, during=((6, TableStep("roll back", 893)),)),
            SourceStep("commit", 652),
        ),
    ),
    # The sink took the rewrite's snapshot for its own, and missed its own afterwards as if it were gone.
    "files are rewritten before the sink sees where its commit is": (
        World(partitions=3, keep_deletes=True),
        (
            SourceStep("commits", 338),
            Batch(0, 1, whole=True, during=((20, "crash"),)),
            Batch(0, 242, during=((19, TableStep("rewrite files", 30)),)),
        ),
    ),
    # The snapshot that the sink stood on had expired, and the older one that was left was taken for its newest.
    "a table is rolled back, and the sink's newest snapshot expires": (
        World(),
        (
            SourceStep("commit", 922),
            Batch(0, 1, whole=True),
            SourceStep("commit", 392),
            Batch(0, 1, whole=True),
            SourceStep("restart", 216),
            TableStep("roll back", 374),
            TableStep("expire", 844),
            Batch(0, 1, whole=True),
        ),
    ),
    # Iceberg logs that it cannot load the table behind a commit; whoever looked at it next got Java's exception.
    "the catalog is away behind a commit": (
        World(),
        (SourceStep("commits", 5), Batch(0, 1, during=((31, "away"), (32, "away")))),
    ),
    # The delete that came again was left out as late, and a row that once moved to its key, again too, put the document
    # back: the cluster had forgotten the delete that was sent before.
    "a row moves to a key once more, whose delete the cluster has forgotten": (
        LEFT_OUT,
        (
            SourceStep("commits", 792),
            SourceStep("commits", 59),
            SourceStep("commit", 871),
            SourceStep("commit", 700),
            SourceStep("commits", 305),
            SourceStep("restart", 995),
            SourceStep("restart", 224),
            Batch(0, 716),
            Batch(0, 558),
            TableStep("forget deletes", 496),
        ),
    ),
    # The old key's delete came in the same batch as that of the new key, or later: the document moved to the new key,
    # whose delete the cluster had forgotten by then.
    "a row moves to a key that the batch deletes, and the cluster forgets that before": (
        LEFT_OUT,
        (
            SourceStep("commits", 166),
            Batch(0, 2, grid=1),
            Batch(0, 6, whole=True, during=((4, TableStep("forget deletes", 674)),), grid=1),
        ),
    ),
    "a row moves late to a key whose delete the cluster has forgotten": (
        World(partitions=2, clock="mysql", documents=True),
        (
            SourceStep("commits", 310),
            SourceStep("restart", 312),
            Batch(0, 1, grid=0),
            TableStep("forget deletes", 308),
        ),
    ),
    # No fault of the product: of the new key only a tombstone was left, which nothing orders with another partition.
    "a row moves to a key, and retention ends in front of its tombstone": (
        World(partitions=2, clock="mysql", documents=True),
        (SourceStep("commits", 310), KafkaStep("retain", 831)),
    ),
    # The stored offsets were compared with where the topics had ended before these were read and stored.
    "a process starts while another one reads on": (
        World(),
        (Batch(0, 0, whole=True, during=((8, SourceStep("commit", 873)), (9, Batch(1, 0, whole=True)))),),
    ),
    # The offsets of what another process had committed were stored without its commit.
    "a table is rolled back behind a commit that only the slower of two sinks stored": (
        World(partitions=2, clock="seconds", lazy=True),
        (
            SourceStep("commits", 777),
            Batch(0, 4, grid=2),
            TableStep("rewrite files", 157),
            Batch(0, 1, grid=2, during=((8, Batch(1, 0, grid=2)),)),
            Maintain(("convert",), 432),
            TableStep("roll back", 632),
            Batch(0, 1, whole=True),
        ),
    ),
    # No fault of the product: of the table as the second sink found it a start would say that it was rolled back.
    "a second sink does again what a rollback took, and the first stores what it had done": (
        World(lazy=True),
        (*PUT_BACK, Batch(1, 0, whole=True), Batch(0, 0, whole=True)),
    ),
    # No fault of the product: the next start says that the table is not as far as its offsets.
    "a second sink does a part of what a rollback took, and the first stores what it had done": (
        World(lazy=True),
        (*PUT_BACK, Batch(1, 1, grid=0), Batch(0, 0, whole=True)),
    ),
    # The commit that was gone took the place of the later one in the offsets table, and was old enough to have expired.
    "what a second sink did again after a rollback is rolled back, and older snapshots have expired": (
        World(lazy=True),
        (
            *PUT_BACK,
            TableStep("append rows", 1),
            TableStep("append rows", 2),
            Batch(1, 0, whole=True),
            Batch(1, 0, whole=True),
            Batch(0, 0, whole=True),
            TableStep("expire", 1),
            TableStep("roll back", 561),
        ),
    ),
    # Nobody can tell (docs/guarantees.md): such an expiry is no part of stories any more.
    "the same, and the second sink was killed before it stored its offsets": (
        World(lazy=True),
        (
            *PUT_BACK,
            TableStep("append rows", 1),
            TableStep("append rows", 2),
            Batch(1, 0, whole=True),
            Kill(1),
            Batch(0, 0, whole=True),
            TableStep("expire", 1),
            TableStep("roll back", 561),
        ),
    ),
    # No fault of the product: the simulated store's refusal was not Java's.
    "files of a killed run that cannot be deleted yet": (
        World(topics=2, shared=True),
        (
            SourceStep("commit", 200),
            Batch(0, 4, grid=1),
            Maintain(("rewrite",), 561, ((14, Batch(0, 1, whole=True)), (15, "late"), (16, "crash"))),
            TableStep("jump of the clock", 744),
            SourceStep("truncate", 243),
            Maintain(("expire",), 693, ((12, Batch(0, 1, grid=1)), (19, "late"))),
        ),
    ),
    # Nobody can tell (docs/guarantees.md): such an expiry is no part of stories any more.
    "snapshots expire that tell a slower sink of a faster one": (
        World(upsert=False),
        (
            SourceStep("commits", 68),
            Batch(1, 4, grid=1),
            SourceStep("commit", 623),
            Maintain(("rewrite",), 743, ((12, Batch(0, 1, whole=True)),)),
            Maintain(("expire",), 958, ((10, TableStep("expire", 428)), (13, Batch(1, 6, grid=1)))),
        ),
    ),
    # What the slower one knew of the table did not tell which rows came behind the truncate: it took them all.
    "a truncate, and two sinks of one name": (
        World(),
        (
            Batch(0, 1, whole=True),
            SourceStep("truncate", 388),
            SourceStep("commit", 10),
            Batch(0, 1, whole=True, during=((16, Batch(1, 1, whole=True)),)),
        ),
    ),
    # What came again behind the truncate was applied to the row that it had marked, and of equal dates the later one
    # wins: the batch ended between the two changes of one transaction.
    "a truncate, and a part of a transaction before it once more": (
        World(keep_deletes=True, places=False, parallelism=2),
        (
            SourceStep("commits", 396),
            SourceStep("commit", 757),
            SourceStep("commits", 32),
            Batch(0, 0, whole=True, grid=2),
            SourceStep("truncate", 948),
            SourceStep("restart", 960),
            Batch(0, 3, grid=2),
        ),
    ),
    # The second sink committed after the first had looked who else did, and before it read the table again: the first
    # took that commit for its own, and a key that both batches have got two rows.
    "a second sink commits between a truncate's marks and its batch": (
        World(partitions=2, keep_deletes=True, places=True, parallelism=2),
        (
            SourceStep("commits", 644),
            SourceStep("commit", 803),
            SourceStep("restart", 923),
            SourceStep("truncate", 527),
            Batch(0, 6, grid=1),
            Batch(0, 0, whole=True, during=((19, Batch(1, 4, grid=1)),), grid=1),
        ),
    ),
    # In front of a truncate that came again stood what is later than all truncates: the batch let it go.
    "a truncate comes again, and another one in another partition": (
        World(partitions=2, moves=True),
        (
            SourceStep("commit", 507),
            Batch(0, 0, whole=True),
            SourceStep("truncate", 222),
            SourceStep("restart", 803),
            SourceStep("truncate", 676),
            SourceStep("commit", 864),
            Batch(0, 3, grid=1),
            SourceStep("restart", 875),
            Batch(0, 0, grid=1),
        ),
    ),
    # The slower one was refused for another writer's rows, and looked for rows to replace once more: it took the commit
    # of the faster one for its own, and an older row replaced a newer one.
    "a second sink commits between two tries of a commit": (
        World(partitions=2, mode="copy-on-write"),
        (
            SourceStep("commits", 828),
            Batch(0, 1, whole=True),
            TableStep("append rows", 23),
            SourceStep("commits", 910),
            SourceStep("commits", 770),
            Batch(0, 3, during=((15, Batch(1, 0, whole=True)),)),
        ),
    ),
    # The document was of another partition, and younger than the truncate; the truncate's own partition had what is
    # younger still, from before the connector sent all of it again.
    "a truncate comes again behind documents of other partitions": (
        World(partitions=3, parallelism=2, documents=True, leaves_out=True),
        (
            SourceStep("commits", 369),
            SourceStep("restart", 514),
            SourceStep("truncate", 97),
            SourceStep("restart", 910),
            SourceStep("commit", 643),
            SourceStep("commit", 365),
            Batch(0, 1, whole=True),
            SourceStep("restart", 475),
            Batch(0, 0, grid=0),
        ),
    ),
    **FOUND_GROWTH,
    **FOUND_ORDERS,
    **FOUND_ROLLBACKS,
}
