"""The rooms of `calendar`.

`lines` finds the parts of an iCalendar file and changes single ones, `zones` knows the time zones it names, `rules` its
repeat rules, `events` reads it, `readings` keeps what was read, and `expand` says when things happen. `folder` and
`server` are where the files are, two of `store`. `times` reads what people write for a time, `wishes` holds what they
want, `edit` words it in a file, `slots` finds free time, `listing` writes it all down; `desk` is one call.
"""
