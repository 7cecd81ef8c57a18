// Package verifiers checks a running server with verifiers that were written by others.
//
// EVIDENCE_URL is the address of the API, such as http://127.0.0.1:8001/api/v2, and EVIDENCE_API_KEY a key of an
// administrator of the organization acme.
package verifiers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

var (
	api = os.Getenv("EVIDENCE_URL")
	log = api + "/ledger/acme"
	key = os.Getenv("EVIDENCE_API_KEY")
)

// entries is the least number of entries: more than a full tile.
const entries = 300

type bearer struct{}

func (bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+key)
	return http.DefaultTransport.RoundTrip(request)
}

var client = &http.Client{Transport: bearer{}, Timeout: time.Minute}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, response.StatusCode, body, err)
	}
	return body
}

func TestMain(m *testing.M) {
	for n := range entries {
		body := fmt.Sprintf(`{"name": "account-%d", "privilege": "reader"}`, n)
		response, err := client.Post(api+"/service-accounts/acme", "application/json", strings.NewReader(body))
		if err != nil || response.StatusCode != http.StatusCreated {
			fmt.Println("cannot write", response, err)
			os.Exit(1)
		}
		response.Body.Close()
	}
	os.Exit(m.Run())
}

// state is the checkpoint of the log, verified by golang.org/x/mod.
func state(t *testing.T) (vkey string, signed []byte, tree tlog.Tree, origin string) {
	t.Helper()
	signed = get(t, log+"/checkpoint")
	origin, _, _ = strings.Cut(string(signed), "\n")
	for line := range strings.Lines(string(get(t, api+"/ledger/keys"))) {
		if strings.HasPrefix(line, origin+"+") {
			vkey = strings.TrimSpace(line)
		}
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := torchwood.ParseCheckpoint(opened.Text)
	if err != nil {
		t.Fatal(err)
	}
	return vkey, signed, checkpoint.Tree, origin
}

func policy(t *testing.T, vkey string) torchwood.Policy {
	t.Helper()
	policy, err := torchwood.ParsePolicy([]byte("log " + vkey + "\nquorum none\n"))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func TestCheckpointIsRefusedAfterAChange(t *testing.T) {
	vkey, signed, _, _ := state(t)
	verifier, _ := note.NewVerifier(vkey)
	text := bytes.Index(signed, []byte("\n\n"))
	for at := range text {
		changed := bytes.Clone(signed)
		changed[at] ^= 1
		if _, err := note.Open(changed, note.VerifierList(verifier)); err == nil {
			t.Errorf("byte %d was changed, and the checkpoint is accepted", at)
		}
	}
}

func TestTorchwoodReadsEveryEntryFromTiles(t *testing.T) {
	_, _, tree, _ := state(t)
	fetcher, err := torchwood.NewTileFetcher(log, torchwood.WithHTTPClient(client))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := torchwood.NewClient(fetcher)
	if err != nil {
		t.Fatal(err)
	}
	read := int64(0)
	for index, entry := range reader.AllEntries(context.Background(), tree, 0) {
		var leaf struct{ Index int64 }
		if err := json.Unmarshal(entry, &leaf); err != nil || leaf.Index != index {
			t.Fatalf("entry %d is %s", index, entry)
		}
		read++
	}
	if err := reader.Err(); err != nil || read != tree.N || read <= entries {
		t.Fatalf("%d of %d entries: %v", read, tree.N, err)
	}
}

func TestProofsOfEachEntry(t *testing.T) {
	vkey, _, tree, _ := state(t)
	var page struct {
		Entries []struct {
			Index     int64
			Leaf      string
			Leaf_hash string
		}
	}
	if err := json.Unmarshal(get(t, fmt.Sprintf("%s/entries/0?to=%d", log, tree.N-1)), &page); err != nil {
		t.Fatal(err)
	}
	if int64(len(page.Entries)) != tree.N {
		t.Fatalf("%d of %d entries", len(page.Entries), tree.N)
	}
	policy := policy(t, vkey)
	for _, entry := range page.Entries {
		hash := tlog.RecordHash([]byte(entry.Leaf))
		if hex.EncodeToString(hash[:]) != entry.Leaf_hash {
			t.Fatalf("the hash of leaf %d is %v", entry.Index, hash)
		}
		file := get(t, fmt.Sprintf("%s/proof/%d", log, entry.Index))
		if err := torchwood.VerifyProof(policy, hash, file); err != nil {
			t.Fatalf("entry %d: %v", entry.Index, err)
		}
		if err := torchwood.VerifyProof(policy, tlog.RecordHash([]byte("another")), file); err == nil {
			t.Fatalf("entry %d: another leaf is accepted", entry.Index)
		}
		var parsed proof.TLogProof
		if err := parsed.Unmarshal(file); err != nil || parsed.Index != uint64(entry.Index) {
			t.Fatalf("entry %d: formats reads %v: %v", entry.Index, parsed.Index, err)
		}
	}
}

func TestTheLogOnlyGrew(t *testing.T) {
	_, _, tree, _ := state(t)
	for from := int64(1); from < tree.N; from += 13 {
		var answer struct {
			From_root, To_root string
			Proof              []string
		}
		if err := json.Unmarshal(get(t, fmt.Sprintf("%s/consistency?from=%d&to=%d", log, from, tree.N)), &answer); err != nil {
			t.Fatal(err)
		}
		hash := func(text string) (hash tlog.Hash) {
			bytes, err := hex.DecodeString(text)
			if err != nil || copy(hash[:], bytes) != tlog.HashSize {
				t.Fatalf("%q is no hash", text)
			}
			return hash
		}
		var path tlog.TreeProof
		for _, text := range answer.Proof {
			path = append(path, hash(text))
		}
		if hash(answer.To_root) != tree.Hash {
			t.Fatalf("the root is not that of the checkpoint")
		}
		if err := tlog.CheckTree(path, tree.N, tree.Hash, from, hash(answer.From_root)); err != nil {
			t.Fatalf("from %d: %v", from, err)
		}
		if err := tlog.CheckTree(path, tree.N, tree.Hash, from, tlog.RecordHash([]byte("a"))); err == nil {
			t.Fatalf("from %d: another root is accepted", from)
		}
	}
}

// TestTesseraRecomputesTheRoot runs the fsck of Tessera, which downloads all tiles.
func TestTesseraRecomputesTheRoot(t *testing.T) {
	vkey, _, _, origin := state(t)
	file := filepath.Join(t.TempDir(), "key")
	fsck := func(vkey string) error {
		if err := os.WriteFile(file, []byte(vkey), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, "go", "run", "github.com/transparency-dev/tessera/cmd/fsck@v1.0.4",
			"--storage_url="+log+"/", "--bearer_token="+key, "--origin="+origin, "--public_key="+file, "--ui=false")
		output, err := command.CombinedOutput()
		// It ends with the status 0 when it failed, too.
		if err != nil || !bytes.Contains(output, []byte("Successfully fsck'd log")) {
			err = fmt.Errorf("fsck: %v: %s", err, output)
		}
		return err
	}
	if err := fsck(vkey); err != nil {
		t.Fatal(err)
	}
	_, other, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsck(other); err == nil || !strings.Contains(err.Error(), "failed to fetch and verify checkpoint") {
		t.Fatalf("the log with another key: %v", err)
	}
}
