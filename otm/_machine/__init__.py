"""Furniture that knows the machine: arrays of any kind, compiled code, JSON, time, progress."""
