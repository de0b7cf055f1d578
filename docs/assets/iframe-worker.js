// The search runs in a Worker, which browsers refuse to pages opened from a folder. There it runs in a hidden frame.
// A Worker gets a copy of each message. A frame would get the object itself, and the page and the search change theirs.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => {
        const event = new MessageEvent("message", { data: structuredClone(data) })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      const script = frame.contentDocument.createElement("script")
      this.ready = new Promise(resolve => { script.onload = resolve })
      script.src = url
      frame.contentDocument.head.append(script)
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }
    terminate() {}
  }
}
