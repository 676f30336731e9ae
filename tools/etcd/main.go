// The etcd server of the release that go.mod names; etcd's own module cannot be installed by name,
// because it replaces its siblings by paths.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
