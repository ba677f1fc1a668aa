"""Progress, and reports to the launcher."""

import io
import json
import socket
from contextlib import redirect_stdout

from callbacks_common import RANK, dataset, finish, model_of, x, y

from tfrun.process import channel

mine, theirs = socket.socketpair()
channel.open_channel(mine.detach())
said = io.StringIO()
with redirect_stdout(said):
    model = model_of()
    print("a print of the script")
    history = model.fit(dataset(), epochs=2, validation_data=dataset(24), verbose=1).history
    positional = model.evaluate(x, y, None, 1)
    model.predict(x, verbose=2)
    several = model_of(steps_per_execution=2)
    several.fit(x, y, batch_size=24, epochs=1, verbose="auto")
theirs.settimeout(10)
data = b""
if RANK == 0:
    while data.count(b"fit_end") < 2:
        data += theirs.recv(65536)
reports = [json.loads(line) for line in data.splitlines()]

finish(said=said.getvalue(), history=history, reports=reports)
