package ferret_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/testkit/integration/ferret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersAreIndependentAndLeaveNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 2 {
		s, err := ferret.Start()
		if err != nil {
			t.Fatal(err)
		}
		client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
		if err != nil {
			t.Fatal(err)
		}
		c := client.Database("d").Collection("c")
		if n, err := c.CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
			t.Errorf("a new server has %d documents, %v", n, err)
		}
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "k", Value: 1}}); err != nil {
			t.Error(err)
		}
		if dirs := leftovers(t); len(dirs) != 1 {
			t.Errorf("data in %v, want one directory while it runs", dirs)
		}
		if remotes := remotePeers(t); len(remotes) > 0 {
			t.Errorf("the process is connected to %v, want loopback only", remotes)
		}
		if err := client.Disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if dirs := leftovers(t); len(dirs) != 0 {
		t.Errorf("data left behind: %v", dirs)
	}
}

func leftovers(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "coord-ferretdb-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// remotePeers returns the addresses outside this machine to which the process has
// TCP connections.
func remotePeers(t *testing.T) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	own := map[string]bool{}
	inode := regexp.MustCompile(`^socket:\[(\d+)\]$`)
	for _, fd := range fds {
		target, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if m := inode.FindStringSubmatch(target); m != nil {
			own[m[1]] = true
		}
	}
	var remote []string
	connections := 0
	for _, table := range []string{"tcp", "tcp6"} {
		lines, _ := os.ReadFile("/proc/self/net/" + table)
		for _, line := range strings.Split(string(lines), "\n")[1:] {
			fields := strings.Fields(line)
			if len(fields) < 10 || !own[fields[9]] || fields[3] == "0A" { // 0A: listening
				continue
			}
			connections++
			if ip := procIP(fields[2]); !ip.IsLoopback() {
				remote = append(remote, fmt.Sprint(ip))
			}
		}
	}
	if connections == 0 {
		t.Error("the process has no connection at all: this test looks in the wrong place")
	}
	return remote
}

// procIP decodes an address of /proc/net/tcp: words in the machine's byte order,
// little-endian on every machine that the tests run on.
func procIP(address string) net.IP {
	digits, _, _ := strings.Cut(address, ":")
	raw, _ := hex.DecodeString(digits)
	for i := 0; i+4 <= len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	return net.IP(raw)
}
