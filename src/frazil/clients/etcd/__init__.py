"""etcd over its JSON gateway, with nothing but the standard library.

``transactions`` has the values that are sent and come back, ``client`` sends them.
"""
