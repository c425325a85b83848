"""What the DAGs share. Nothing here imports the core, Spark or pandas when a DAG file is parsed."""
