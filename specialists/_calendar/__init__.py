"""Built in: the rooms of `calendar`.

`lines` finds the parts of an iCalendar file and changes single ones, `zones` knows the time zones it names, `rules` its
repeat rules, `events` reads it and `expand` says when things happen; `folder` and `caldav` keep the files, `edit` words
changes, `times` reads what people write for a time, `slots` finds free time, `listing` writes it all down.
"""
