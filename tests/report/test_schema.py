"""The JSON document validates against the data model and reads back as the value it was written from."""

from __future__ import annotations

import json

import pytest

from chaossloth.evidence import dumps
from chaossloth.report.schema import json_schema, loads
from tests.report import samples


@pytest.mark.parametrize("outcome", sorted(samples.OUTCOMES))
def test_round_trip(outcome: str) -> None:
    investigation = samples.OUTCOMES[outcome]()
    assert loads(dumps(investigation)) == investigation


def test_deadlock_and_starvation_survive() -> None:
    for investigation in (samples.deadlock(), samples.starving()):
        assert loads(dumps(investigation)) == investigation


def test_wrong_document_names_the_field() -> None:
    document = json.loads(dumps(samples.investigation()))
    document["outcome"] = "fine"
    with pytest.raises(ValueError, match="outcome"):
        loads(json.dumps(document))


def test_schema_lists_the_contract() -> None:
    contract = {
        "schema", "version", "command", "target", "fingerprint", "outcome", "verdict", "natural", "boundary",
        "findings", "liveness", "starvation", "timings_s", "reproduce",
    }  # fmt: skip
    schema = json_schema()
    assert contract <= set(schema["properties"])
    finding = schema["$defs"]["Finding"]["properties"]
    assert {"failure", "label", "token", "critical_pair", "trace", "forced", "repair"} <= set(finding)
