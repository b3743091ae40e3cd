"""The border to the operating system: files, processes, threads and loops."""
