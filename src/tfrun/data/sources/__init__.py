"""Where samples come from: arrays, record files, pipelines."""
