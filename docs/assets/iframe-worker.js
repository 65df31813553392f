/* Browsers start no workers in pages that are opened from disk, and the search of the site is one.
   There, its script runs in a hidden frame, which has what the script uses of a worker. */
"use strict";

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => FrameWorker.deliver(this, data);
    // Unlike that of a worker it does not block: the script awaits it.
    inside.importScripts = async (...urls) => {
      for (const each of urls) await this.load(each);
    };
    this.loaded = this.load(url);
  }

  // Each message is a task of its own, as those of workers are.
  static deliver(receiver, data) {
    const event = new MessageEvent("message", {data: structuredClone(data)});
    setTimeout(() => receiver.dispatchEvent(event));
  }

  load(url) {
    const script = this.frame.contentDocument.createElement("script");
    script.src = url;
    return new Promise((resolve, reject) => {
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${url}`));
      this.frame.contentDocument.body.append(script);
    });
  }

  async postMessage(data) {
    await this.loaded;
    FrameWorker.deliver(this.frame.contentWindow, data);
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
