"""The APIs that the server speaks, one file each, over what they share (``wire``)."""
