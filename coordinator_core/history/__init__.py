"""History of groups and their committed offsets, from the log alone: when, by whom, by which rule.

May import ``lifecycle``, ``replay`` and packages below them. Start reading at ``model`` (values and causes), then
``read``, which notes what each record of the sequential replay changes, then ``signs``: what is wrong in a history.
``table`` makes the rows of all groups, of what ``taking`` and a kernel took without an object for each commit.
"""
