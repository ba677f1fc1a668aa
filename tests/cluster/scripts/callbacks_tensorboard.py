"""TensorBoard with histograms, and with the logs of single steps."""

import keras
import tensorflow as tf
from callbacks_common import FOLDER, barrier, dataset, finish, listing, model_of

model = model_of()
board = keras.callbacks.TensorBoard(
    FOLDER / "board", histogram_freq=1, update_freq=2, write_steps_per_second=True
)
model.fit(dataset(), epochs=2, validation_data=dataset(), callbacks=[board])
barrier()
tags = {}
for name in listing("board"):
    for event in tf.compat.v1.train.summary_iterator(str(FOLDER / "board" / name)):
        for value in event.summary.value:
            tags.setdefault(name.split("/")[0], set()).add(value.tag)
finish(
    files=[name.split("/")[0] for name in listing("board")],
    tags={kind: sorted(found) for kind, found in tags.items()},
)
