"""Decisions: facts + now → what to do. Pure: no clock, no I/O, no database.

misfire    late and missed ticks           ticks      bounds, jitter, what to write ahead
retry      how an attempt ended            overlap    a tick whose predecessor still runs
lifecycle  the states of a run             fairness   the order in which lanes are served
"""
