"""Options and text that several verbs share: keys, passphrases, evidence and requirements."""
