"""What a machine does with a state that another one has sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.process import channel
from tfrun.state import share_snapshot
from tfrun.state.share_snapshot import Stand


def test_it_is_left_to_the_successors(tmp_path: Path) -> None:
    path = tmp_path / "state-0-1-2.safetensors"
    share_snapshot._leave(path, b"state")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"state"


def test_without_room_nothing_is_left_behind_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(channel, "emit", lambda report: said.append(report.text))
    path = tmp_path / "state-0-1-2.safetensors"
    path.mkdir()  # what cannot be replaced by a file
    share_snapshot._leave(path, b"state")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == [".no-room"]
    assert len(said) == 1 and "TFRUN-702" in said[0]


IN_STEP = Stand(call=1, epoch=2, step=3, began=True)
AT_START = Stand(call=1, step=4)  # behind so many calls of `evaluate` and `predict`
SUCCESSOR = Stand(call=1, stayed=False)


def test_all_go_on_from_the_state_of_one_that_is_furthest() -> None:
    further = IN_STEP._replace(step=4)
    ended = IN_STEP._replace(trained=True)
    assert share_snapshot.source([IN_STEP, IN_STEP]) is None
    assert share_snapshot.source([IN_STEP, further, IN_STEP]) == 1
    assert share_snapshot.source([IN_STEP, ended]) == 1
    assert share_snapshot.source([AT_START, IN_STEP]) == 1  # it has begun already
    assert share_snapshot.source([SUCCESSOR, IN_STEP, further]) == 2
    assert share_snapshot.source([SUCCESSOR, IN_STEP, IN_STEP]) == 1


def test_who_made_variables_alone_goes_on_from_those_of_one() -> None:
    alone = IN_STEP._replace(is_whole=False)
    assert share_snapshot.source([alone, alone]) == 0
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([AT_START._replace(is_whole=False), AT_START])


def test_where_nobody_has_a_state_all_have_to_be_in_the_same_place() -> None:
    assert share_snapshot.source([AT_START, AT_START]) is None
    for other in (AT_START._replace(step=5), IN_STEP._replace(call=2), AT_START._replace(call=0)):
        with pytest.raises(share_snapshot.Apart):
            share_snapshot.source([AT_START, other])


def test_a_successor_that_has_prepared_for_another_training_does_not_fit() -> None:
    for stayed in (AT_START, IN_STEP._replace(call=2)):
        with pytest.raises(share_snapshot.UnfitSuccessor):
            share_snapshot.source([stayed, stayed, SUCCESSOR])


def test_nobody_goes_on_without_a_chief_that_may_not_have_come_there() -> None:
    """What it alone would have written before that would be missing."""
    waiting = AT_START._replace(all_came=False)
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([waiting, waiting])
    assert share_snapshot.source([waiting._replace(led=True), waiting]) is None
    assert share_snapshot.source([waiting, AT_START]) is None  # who knows that all had come
    assert share_snapshot.source([IN_STEP, waiting]) == 0


def test_nobody_is_taken_to_where_another_one_is_in_the_midst_of_a_loop() -> None:
    here = Stand(call=1, epoch=0, step=3, levels=False)
    assert share_snapshot.source([here, here]) is None
    assert share_snapshot.source([here, here, SUCCESSOR]) == 0
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([here, here._replace(step=4)])
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([here._replace(step=4), here, SUCCESSOR])


def test_who_has_met_others_more_often_since_the_newest_step_is_elsewhere() -> None:
    here = Stand(call=1, epoch=0, step=3, levels=False, sums=4)
    assert share_snapshot.source([here, here]) is None
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([here, here._replace(sums=5)])
    with pytest.raises(share_snapshot.Apart):  # in the next step
        share_snapshot.source([here, here._replace(sums=-1)])
    with pytest.raises(
        share_snapshot.UnfitSuccessor
    ):  # it would not come to what the others make again
        share_snapshot.source([here, SUCCESSOR])


def test_who_left_right_after_a_step_meets_those_who_did_nothing_yet_or_are_in_the_next() -> None:
    """The wish to leave reaches some before, and some after the script has gone on."""
    in_step = Stand(call=1, epoch=0, step=3, levels=False)
    after = in_step._replace(fresh=True)
    in_first, in_second = after._replace(sums=0), in_step._replace(sums=1)
    for other in (in_step, in_first, in_first._replace(fresh=False)):
        assert share_snapshot.source([after, other, after]) is None
    for those in ([after, in_second], [in_step, in_first], [after, in_step, in_first]):
        with pytest.raises(share_snapshot.Apart):
            share_snapshot.source(those)


def test_who_has_just_left_knows_nothing_of_what_the_chief_wrote_after_the_step() -> None:
    after = Stand(call=1, epoch=0, step=3, levels=False, fresh=True)
    skipped = after._replace(sums=0, fresh=False, all_came=False)
    with pytest.raises(share_snapshot.Apart):
        share_snapshot.source([after, skipped])
    assert share_snapshot.source([after._replace(led=True), skipped]) is None
    assert share_snapshot.source([after, after]) is None


def test_a_successor_joins_those_who_have_done_nothing_since_the_newest_step() -> None:
    after = Stand(call=1, epoch=0, step=3, levels=False, fresh=True)
    in_first = after._replace(sums=0)
    assert share_snapshot.source([after, in_first, SUCCESSOR]) == 0
    with pytest.raises(share_snapshot.UnfitSuccessor):
        share_snapshot.source([after, in_first._replace(fresh=False), SUCCESSOR])
