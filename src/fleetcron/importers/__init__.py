"""Jobs from what people have today. Each importer is pure, text in, records and a report out; the CLI does the I/O."""
