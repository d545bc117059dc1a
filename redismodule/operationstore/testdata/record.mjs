// Records of lazy-layers-cache/transactions as a service in TypeScript has them, written
// from the layout alone: it shares no code with the Go side, not even Lua's JSON.
//
//   node record.mjs encode   [{namespace, tenant, operation, idempotencyKey, ...record}]
//                            → [{key, raw}]
//   node record.mjs decode   [raw] → [{record} or {refused: why}]
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'

const digest = (...parts) =>
  createHash('sha256').update(JSON.stringify(parts), 'utf8').digest('hex')

const fields = ['schema', 'fingerprint', 'durableId', 'owner', 'state', 'leaseUntilMs', 'retainUntilMs', 'resultRef']
const hex64 = /^[0-9a-f]{64}$/
const reference = /^[A-Za-z0-9_:/%.-]+$/
const decimal = /^(0|[1-9][0-9]{0,15})$/

function encode(v) {
  const key = `lltx:v1:${digest(v.namespace, v.tenant)}:{${digest(v.namespace, v.tenant, v.operation, v.idempotencyKey)}}:record`
  return { key, raw: JSON.stringify(Object.fromEntries(fields.map((f) => [f, v[f]]))) }
}

function decode(raw) {
  const refuse = (why) => ({ refused: why })
  if (Buffer.byteLength(raw, 'utf8') > 2048) return refuse('longer than 2048 bytes')
  let r
  try { r = JSON.parse(raw) } catch (e) { return refuse(e.message) }
  if (r === null || typeof r !== 'object' || Array.isArray(r)) return refuse('no object')
  if (Object.keys(r).sort().join() !== [...fields].sort().join()) return refuse(`fields ${Object.keys(r)}`)
  if (r.schema !== 1) return refuse('schema')
  for (const f of fields.slice(1)) if (typeof r[f] !== 'string') return refuse(`${f} is no string`)
  if (!hex64.test(r.fingerprint) || !hex64.test(r.owner)) return refuse('fingerprint or owner')
  if (!reference.test(r.durableId) || r.durableId.length > 128) return refuse('durableId')
  if (!decimal.test(r.leaseUntilMs) || !decimal.test(r.retainUntilMs)) return refuse('times')
  const lease = Number(r.leaseUntilMs), retain = Number(r.retainUntilMs)
  if (!Number.isSafeInteger(lease) || !Number.isSafeInteger(retain) || retain <= 0) return refuse('times')
  if (r.state === 'pending') {
    if (lease <= 0 || retain < lease || r.resultRef !== '') return refuse('pending')
  } else if (r.state === 'completed') {
    if (lease !== 0 || !reference.test(r.resultRef) || r.resultRef.length > 256) return refuse('completed')
  } else return refuse('state')
  return { record: r }
}

const work = process.argv[2] === 'encode' ? encode : decode
writeFileSync(1, JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(work)))
