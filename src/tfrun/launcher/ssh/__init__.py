"""Agents on other machines, over the system's OpenSSH client."""
