"""Modules of the specialist `calendar`, from files to answers.

- Files: `ics_lines` splits an iCalendar file into lines, `ics_read` reads its events, `ics_edit` writes changes.
- Time: `times` reads what people write, `zones` the time zones of files, `rules` checks repeat rules, `expand` finds
  occurrences in a window, `occurrences` the one that a call names.
- Storage: `calendars` defines the interface of a store; `folder` and `caldav` implement it.
- Calls: `request` holds the parameters, `draft` the requested event, `plan` a change before it is made.
- Results: `actions` does the work of one call, `free_time` finds gaps, `listing` and `answers` write the text.
"""
