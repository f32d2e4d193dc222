"""The kinds of figure: a module each, which is all that a new kind needs."""
