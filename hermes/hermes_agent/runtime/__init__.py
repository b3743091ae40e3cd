"""Threads and event loops: the bridge between the async core, worker threads and plugin code."""
