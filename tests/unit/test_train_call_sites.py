"""Do two workers stand at the same place of the script?"""

import textwrap

from tfrun.train import call_sites

SOURCE = textwrap.dedent("""\
    if chief:
        save("a")
    elif rank == 1:
        save("b")
    else:
        for _ in range(3):
            save("c")
    save("d")
    if other:
        save("e")
""")


def test_branches_of_one_statement():
    assert call_sites.in_other_branch(SOURCE, 2, 4)
    assert call_sites.in_other_branch(SOURCE, 7, 2)
    assert call_sites.in_other_branch(SOURCE, 4, 7)
    assert not call_sites.in_other_branch(SOURCE, 2, 8)
    assert not call_sites.in_other_branch(SOURCE, 2, 2)
    assert not call_sites.in_other_branch(SOURCE, 8, 10)
    assert not call_sites.in_other_branch("this is no python", 1, 2)


def save(_path):
    return call_sites.here()


def save_twice(is_chief):
    if is_chief:
        place = save("mine")
    else:
        place = save("theirs")
    return place, save("both")


def test_places_of_a_script():
    (chief, both), (worker, other) = [save_twice(is_chief) for is_chief in (True, False)]
    # These two lines of the test are one line of a script that two workers run.
    chief, both, worker, other = (
        _below(place, "save_twice") for place in (chief, both, worker, other)
    )
    assert worker.is_met_by(chief.frames) and chief.is_met_by(worker.frames)
    assert both == other and both.is_met_by(other.frames)
    assert not both.is_met_by(worker.frames)
    assert not both.is_met_by(both.frames[:1])
    assert str(both).startswith("test_train_call_sites.py:")


def _below(place, function):
    start = next(i for i, frame in enumerate(place.frames) if frame.function == function)
    return call_sites.CallPlace(place.frames[start:], place.files[start:])


def test_libraries_are_no_place():
    import keras

    names = []
    keras.tree.map_structure(lambda _: names.append(call_sites.here().frames), [1])
    assert {frame.file for frame in names[0] if "keras" in frame.file} == set()
    assert names[0][-1].file == "test_train_call_sites.py"
