"""`fit` and custom loops on many workers: callbacks, learning rate, reports, trials."""
