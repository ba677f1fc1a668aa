"""On PYTHONPATH it makes matplotlib and scikit-learn, which Keras imports, seem not installed."""

import sys

sys.modules.update(dict.fromkeys(("matplotlib", "sklearn")))
