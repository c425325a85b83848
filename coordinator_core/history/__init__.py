"""What happened to groups and their committed offsets, told from the log alone: when, by whom, by which rule.

May import ``replay``, ``lifecycle`` and packages below them. Start reading at ``model`` (what a history is made of), then
``read`` (one replay, noted down), ``judge`` (what ended a value) and ``origins`` (who committed it).
"""
