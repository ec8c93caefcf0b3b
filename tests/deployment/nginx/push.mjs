// Uploads one file with tus-js-client, and says in JSON what came of it.
// node push.mjs <folder with node_modules> <endpoint> <file> <options as JSON>
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const [folder, endpoint, path, options] = process.argv.slice(2)
const { Upload } = createRequire(join(folder, 'node_modules', 'x.js'))('tus-js-client')
let retries = 0
let starts = 1

const upload = new Upload(readFileSync(path), {
  endpoint,
  metadata: { filename: 'model.onnx' },
  retryDelays: [50, 100, 200, 400, 800, 1600, 3000, 3000, 3000, 3000],
  ...JSON.parse(options),
  onShouldRetry: (error) => {
    retries += 1
    const status = error.originalResponse?.getStatus() ?? 0
    return status === 0 || status === 409 || status >= 500
  },
  onError: (error) => {
    // The last request of parallel uploads is not retried by the client: whoever uses it starts the upload again.
    if (!error.originalResponse && starts < 10) {
      starts += 1
      setTimeout(() => upload.start(), 300)
      return
    }
    console.error(String(error))
    process.exit(1)
  },
  onSuccess: ({ lastResponse }) => {
    console.log(JSON.stringify({ store: lastResponse.getHeader('protoslice-store'), url: upload.url, retries }))
  },
})
upload.start()
