"""HTML reports: of recordings (declared in `page.toml`), of a comparison and of a study."""
