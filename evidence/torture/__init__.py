"""The standing harness: whatever a public function, command or file reader may meet, against what
they promise.
"""
