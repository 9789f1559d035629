# A regular package, because some frameworks install a `tests` of their own, which would hide a namespace package.
