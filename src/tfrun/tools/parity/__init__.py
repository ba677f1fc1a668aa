"""Parity: does a script compute the same on any number of workers?"""
