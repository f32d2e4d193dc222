"""Code that runs inside the user's own program, in the program's Python.

Imports the standard library and this package alone; torch is imported lazily, once the program has imported it. The
rest of `collect` may not be installed there. The other way round, `collect` may import this package.
"""
