"""The warm-up beside a start: its job is given up when the run ends first."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from connector.sink.microbatch import warmup

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("delay_s", [0.0, 1.0], ids=["about to begin", "under way"])
def test_a_warm_up_that_takes_long_is_given_up(
    delay_s: float, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that are gone would be asked for minutes by its tasks; jobs of others go on."""

    def warm_up(*_: object) -> None:
        time.sleep(0.5)
        spark.sparkContext.parallelize([600], 1).map(time.sleep).collect()

    monkeypatch.setattr(warmup, "warm_up", warm_up)
    monkeypatch.setattr(warmup, "_GIVE_UP_S", 60)
    warming = warmup.WarmUpBeside(spark, cast("Any", None), cast("Any", None))
    assert not warming.wait(delay_s)
    warming.close()
    assert warming.wait(0)
    assert spark.sparkContext.parallelize([1, 2], 1).sum() == 3
