// Calls of a Protoslice service by a client that oapi-codegen generated; see README.md.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"example/protoslice"
)

const (
	bytesType = "application/octet-stream"
	tusType   = "application/offset+octet-stream"
	retries   = 100
	piece     = 1 << 20 // the longest range that is answered with a digest
)

var ctx = context.Background()

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// run makes every call once.
func run(url, model string) error {
	client, err := protoslice.NewClient(url, protoslice.WithRequestEditorFn(authorize))
	if err != nil {
		return err
	}
	file, err := os.Open(model)
	if err != nil {
		return err
	}
	defer file.Close()
	store, err := uploadStream(client, file, "go-stream")
	if err != nil {
		return err
	}
	fmt.Printf("stream of unknown length: store %.12s\n", store)
	resumed, err := uploadFile(client, model, "go-file")
	if err != nil {
		return err
	}
	fmt.Printf("resumable upload: store %.12s\n", resumed)
	return read(client, store)
}

// authorize sends the token, which an open service does not need.
func authorize(_ context.Context, request *http.Request) error {
	if token := os.Getenv("PROTOSLICE_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func read(client *protoslice.Client, store string) error {
	chunks, err := chunksOf(client, store)
	if err != nil {
		return err
	}
	largest := chunks[0]
	for _, chunk := range chunks {
		if chunk.Size > largest.Size {
			largest = chunk
		}
	}
	data, err := chunkInParts(client, store, largest.Index)
	if err != nil {
		return err
	}
	fmt.Printf("%d chunks; number %d by ranges: %d\n", len(chunks), largest.Index, len(data))
	graph, err := body(client.GetMerged(ctx, store, &protoslice.GetMergedParams{
		Path: ptr("graph"), OmitLargerThan: ptr("1KiB"),
	}))
	if err != nil {
		return err
	}
	fmt.Printf("the graph without weights: %d bytes\n", len(graph))
	tensors, err := tensorsOf(client, store)
	if err != nil {
		return err
	}
	first := tensors[0]
	slice, err := body(client.GetTensor(ctx, store, first.Name, &protoslice.GetTensorParams{Slice: ptr("0:4")}))
	if err != nil {
		return err
	}
	fmt.Printf("%d tensors; the first bytes of %s: %x\n", len(tensors), first.Name, slice)
	statuses, err := moveTag(client, "go-tag", store)
	fmt.Println("tag created, moved, refused:", statuses)
	return err
}

// uploadStream uploads what it reads, whose length is unknown, such as the output of a program.
func uploadStream(client *protoslice.Client, from io.Reader, tag string) (string, error) {
	reader, writer := io.Pipe() // no length is known of a pipe: the body is sent in chunks
	go func() {
		_, err := io.Copy(writer, from)
		writer.CloseWithError(err)
	}()
	var made protoslice.CreatedStore
	params := &protoslice.CreateStoreParams{Filename: ptr("model.onnx"), Tag: &[]string{tag}}
	answer, err := body(client.CreateStoreWithBody(ctx, params, bytesType, reader))
	if err == nil {
		err = json.Unmarshal(answer, &made)
	}
	return made.Id, err
}

// uploadFile uploads a file by tus, and continues where the service is when the connection breaks.
func uploadFile(client *protoslice.Client, name, tag string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	tus := ptr("1.0.0")
	begun, err := client.CreateUploadWithBody(ctx, &protoslice.CreateUploadParams{
		TusResumable: tus, UploadLength: ptr(info.Size()), Filename: ptr(filepath.Base(name)), Tag: &[]string{tag},
	}, tusType, http.NoBody)
	if _, err = body(begun, err); err != nil {
		return "", err
	}
	upload := path.Base(begun.Header.Get("Location"))
	offset := int64(0)
	for range retries {
		sent, err := client.AppendToUploadWithBody(ctx, upload, &protoslice.AppendToUploadParams{
			TusResumable: tus, UploadOffset: &offset,
		}, tusType, io.NewSectionReader(file, offset, info.Size()-offset))
		if err == nil {
			_, err = body(sent, nil)
			return sent.Header.Get("Protoslice-Store"), err
		}
		state, failed := client.GetUploadHead(ctx, upload, &protoslice.GetUploadHeadParams{TusResumable: tus})
		if failed != nil {
			return "", failed
		}
		state.Body.Close()
		if offset, failed = strconv.ParseInt(state.Header.Get("Upload-Offset"), 10, 64); failed != nil {
			return "", failed
		}
		fmt.Printf("  %v: continue at %d of %d bytes\n", err, offset, info.Size())
		if offset == info.Size() {
			return state.Header.Get("Protoslice-Store"), nil
		}
	}
	return "", errors.New("the connection breaks too often")
}

// chunksOf returns all chunks of a store, page by page.
func chunksOf(client *protoslice.Client, store string) ([]protoslice.ChunkEntry, error) {
	var all []protoslice.ChunkEntry
	params := &protoslice.ListChunksParams{Limit: ptr(int32(2))}
	for {
		var page protoslice.PageOfChunkEntry
		answer, err := body(client.ListChunks(ctx, store, params))
		if err == nil {
			err = json.Unmarshal(answer, &page)
		}
		if all = append(all, page.Items...); err != nil || page.Next == nil {
			return all, err
		}
		params.Cursor = page.Next
	}
}

// tensorsOf returns all tensors of a store, page by page.
func tensorsOf(client *protoslice.Client, store string) ([]protoslice.TensorEntry, error) {
	var all []protoslice.TensorEntry
	params := &protoslice.ListTensorsParams{Limit: ptr(int32(2))}
	for {
		var page protoslice.TensorPage
		answer, err := body(client.ListTensors(ctx, store, params))
		if err == nil {
			err = json.Unmarshal(answer, &page)
		}
		if all = append(all, page.Items...); err != nil || page.Next == nil {
			return all, err
		}
		params.Cursor = page.Next
	}
}

// chunkInParts gets a chunk by ranges, four at a time, each compared with its digest, all of one version by If-Range.
func chunkInParts(client *protoslice.Client, store string, number int64) ([]byte, error) {
	get := func(start int, etag *string) ([]byte, http.Header, error) {
		answer, err := client.GetChunk(ctx, store, number, &protoslice.GetChunkParams{
			Range:             ptr(fmt.Sprintf("bytes=%d-%d", start, start+piece-1)),
			IfRange:           etag,
			WantContentDigest: ptr("sha-256=1"),
		})
		data, err := body(answer, err)
		if err != nil {
			return nil, nil, err
		}
		if answer.StatusCode != http.StatusPartialContent {
			return nil, nil, errors.New("the chunk has changed: start again")
		}
		return data, answer.Header, check(data, answer.Header.Get("Content-Digest"))
	}
	first, head, err := get(0, nil)
	if err != nil {
		return nil, err
	}
	_, total, _ := strings.Cut(head.Get("Content-Range"), "/")
	size, err := strconv.Atoi(total)
	if err != nil {
		return nil, err
	}
	whole := make([]byte, size)
	copy(whole, first)
	starts := make(chan int)
	failures := make(chan error, 4)
	for range 4 {
		go func() {
			var failure error
			for start := range starts {
				if failure == nil {
					var data []byte
					data, _, failure = get(start, ptr(head.Get("ETag")))
					copy(whole[start:], data)
				}
			}
			failures <- failure
		}()
	}
	for start := piece; start < len(whole); start += piece {
		starts <- start
	}
	close(starts)
	for range 4 {
		err = errors.Join(err, <-failures)
	}
	if err != nil {
		return nil, err
	}
	return whole, check(whole, head.Get("Repr-Digest"))
}

// check compares bytes with a digest of the service.
func check(data []byte, digest string) error {
	if digest == "" {
		return errors.New("there is no digest in the answer")
	}
	sum := sha256.Sum256(data)
	if "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" != digest {
		return errors.New("the bytes differ from their digest")
	}
	return nil
}

// moveTag creates a tag only if there is none, then moves it only if it is unchanged; a stale condition gives 412.
func moveTag(client *protoslice.Client, tag, store string) ([]int, error) {
	var statuses []int
	put := func(params *protoslice.PutTagParams) error {
		answer, err := client.PutTag(ctx, tag, params, protoslice.PutTagJSONRequestBody{Store: store})
		if err == nil {
			answer.Body.Close()
			statuses = append(statuses, answer.StatusCode)
		}
		return err
	}
	if err := put(&protoslice.PutTagParams{IfNoneMatch: ptr("*")}); err != nil {
		return nil, err
	}
	current, err := client.GetTag(ctx, tag, &protoslice.GetTagParams{})
	if err != nil {
		return nil, err
	}
	current.Body.Close()
	if err := put(&protoslice.PutTagParams{IfMatch: ptr(current.Header.Get("ETag"))}); err != nil {
		return nil, err
	}
	err = put(&protoslice.PutTagParams{IfMatch: ptr(`"stale"`)})
	return statuses, err
}

// body reads an answer; a problem is an error.
func body(answer *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 400 {
		err = fmt.Errorf("%s: %s", answer.Status, data)
	}
	return data, err
}

func ptr[T any](value T) *T { return &value }
