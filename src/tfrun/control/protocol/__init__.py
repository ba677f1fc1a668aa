"""The protocol of controller and agents: messages, their form on the wire, TLS, versions."""
