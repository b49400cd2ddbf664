"""Modules of the specialist `calendar`, from files to results.

- Files: `ics_lines` splits an iCalendar file into lines, `ics_read` reads its events, `ics_edit` writes changes.
- Time: `times` parses dates and times, `zones` time zones, `rules` repeat rules. `expand` finds the occurrences in a
  window, `occurrences` the one that a call names.
- Storage: `calendars` defines the interface of a store; `folder` and `caldav` implement it.
- Calls: `request` holds the parameters, `draft` the requested event, `plan` a planned change.
- Results: `actions` executes one call, `free_time` finds gaps, `listing` and `answers` write the text.
"""
