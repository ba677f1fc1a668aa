"""How controller and agents speak: messages, their form on the wire, TLS, versions."""
