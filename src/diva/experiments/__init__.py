"""The paper's evaluation: cells to run, rows they leave, tables and figures beside the published values."""
