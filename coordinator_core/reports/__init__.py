"""State, records and findings as text, JSON, HTML and metrics, in the words of Kafka's own tools.

Decides nothing: packages below make the findings. May import every package except ``cluster`` and ``cli``. Start
reading at ``describe`` (JSON), ``consumer_groups`` (text of ``kafka-consumer-groups``), ``dump`` (text of
``kafka-dump-log``) or ``run_report`` (the document behind every form of ``regroup report``).
"""
