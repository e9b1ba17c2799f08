"""Labels: claims, rubrics, raters, the panel and its Label Studio bridge."""
