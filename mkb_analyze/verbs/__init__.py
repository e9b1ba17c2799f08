"""Groups of verbs, one file a group; each verb parses, makes one library call and words the answer."""
