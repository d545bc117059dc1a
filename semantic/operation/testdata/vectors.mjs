// Computes the wire vectors of vectors.json with JavaScript's own JSON and crypto, as
// an encoder that shares no code with the Go one. Run: node vectors.mjs > vectors.json
// With an argument it reads a JSON array of string arrays on stdin and prints the
// digests of them, for the randomized comparison in tuple_test.go.
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'

const digest = (...parts) =>
  createHash('sha256').update(JSON.stringify(parts), 'utf8').digest('hex')

if (process.argv[2] === '-') {
  const tuples = JSON.parse(readFileSync(0, 'utf8'))
  writeFileSync(1, JSON.stringify(tuples.map((t) => digest(...t))))
  process.exit(0)
}

const awkward = [
  'plain', '<>&', 'a"\\<&>\u2028 é 😀', '\u2028\u2029', '"quoted" \\ back/slash', '😀👩‍👩‍👧‍👦', 'ä\u0308', '\u0080\u009f',
  '\ufeffbom', '漢字', '\uffff', '\u{10ffff}', ' ', '[","]', '{}', '%', '\'', '`${x}`',
]
const identities = []
for (const [i, s] of awkward.entries()) {
  identities.push({ namespace: 'billing-operations', tenant: s, operation: 'charge', idempotencyKey: `k${i}` })
  identities.push({ namespace: 'a.b:c_d-1', tenant: 'acme', operation: s, idempotencyKey: s + s })
}
identities.push({ namespace: 'n', tenant: 'x'.repeat(128), operation: 'o'.repeat(96), idempotencyKey: 'é'.repeat(128) })
// One field's end is not another one's beginning.
identities.push({ namespace: 'n', tenant: 'ab', operation: 'c', idempotencyKey: 'd' })
identities.push({ namespace: 'n', tenant: 'a', operation: 'bc', idempotencyKey: 'd' })
for (const v of identities) {
  v.key = `lltx:v1:${digest(v.namespace, v.tenant)}:{${digest(v.namespace, v.tenant, v.operation, v.idempotencyKey)}}:record`
}
const fingerprints = awkward.map((s, i) => ({ domain: i % 2 ? 'order-v1' : s, fields: [s, 'x', s + '|' + s] }))
fingerprints.push({ domain: 'only-a-domain', fields: [] })
for (const v of fingerprints) v.fingerprint = digest(v.domain, ...v.fields)

const payments = [
  { tenant: 'acme', fromAccount: 'acct:1', toAccount: 'acct:2', currency: 'USD', amountMinor: '1200' },
  { tenant: 'acme & <sons> "é" 😀\u2028', fromAccount: 'a/b%20.c-d_e', toAccount: 'Z', currency: 'JPY', amountMinor: '1' },
  { tenant: 't', fromAccount: '1', toAccount: '2', currency: 'EUR', amountMinor: '9223372036854775807' },
]
for (const v of payments) v.fingerprint = digest('payment-v1', v.tenant, v.fromAccount, v.toAccount, v.currency, v.amountMinor)

const providerKeys = [
  { durableId: 'payment-1', providerAccount: 'stripe:acct_1' },
  { durableId: 'a/b%2F.c-d_e:f', providerAccount: 'x' },
]
for (const v of providerKeys) v.key = 'lltx-provider-v1-' + digest('provider-v1', v.providerAccount, v.durableId)

console.log(JSON.stringify({ identities, fingerprints, payments, providerKeys }, null, 1))
