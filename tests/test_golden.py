"""Training gives the recorded numbers: the net under a redesign that must not change any."""

import json

import pytest

from golden.record import RECORD, UPDATES, cases, machine, recorded

KEPT = json.loads(RECORD.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert list(KEPT["losses"]) == list(cases())


@pytest.mark.parametrize("name", KEPT["losses"])
def test_losses_are_those_of_the_record(name, tmp_path):
    expected = [float.fromhex(value) for value in KEPT["losses"][name].split()]
    found = recorded(name, tmp_path)
    assert len(found) == UPDATES
    if machine() == KEPT["machine"]:
        assert found == expected  # bit for bit
    else:  # other instructions round otherwise
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
