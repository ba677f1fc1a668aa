"""Which sample goes where: order, shares, position, sources, and the pipeline under Keras."""
