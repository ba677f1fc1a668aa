"""Who is where: addresses, hosts, TF_CONFIG, ranks, ports."""
